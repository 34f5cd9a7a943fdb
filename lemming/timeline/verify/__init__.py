"""Every file against the journals."""
