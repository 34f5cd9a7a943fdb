"""Services around ticks: sleeping, change detection, alerts, backups, model setup."""
