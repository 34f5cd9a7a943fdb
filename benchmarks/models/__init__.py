"""A suite of turns for real models: the questions of one shop, asked through LeMMing and other frameworks."""
