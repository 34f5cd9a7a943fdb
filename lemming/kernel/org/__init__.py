"""An organisation and the settings as values: `config/`, resumes and schedules."""
