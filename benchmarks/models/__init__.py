"""Suite of turns for real models: tasks of a shop, run through LeMMing and other frameworks."""
