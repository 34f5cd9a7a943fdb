"""Exchange with other programs: import their agents as resumes, and export ours."""
