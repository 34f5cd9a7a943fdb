"""Wall-clock times: time zones, and parsing and formatting of times for people. Pure."""
