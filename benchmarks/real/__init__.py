"""Many concurrent turns through OpenAI's SDK: LeMMing and other frameworks in the same run."""
