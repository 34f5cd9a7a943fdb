"""Moments of the wall clock: cron schedules, and how people write and read a moment. Pure."""
