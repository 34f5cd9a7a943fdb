"""An organisation and its settings as values: `config/`, resumes, and when who fires."""
