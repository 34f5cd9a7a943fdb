"""Facts about an organisation for any screen: what is wrong, what runs next, what is ready. Looks only."""
