"""The providers that ship, one file each. Nothing here is imported before it is used."""
