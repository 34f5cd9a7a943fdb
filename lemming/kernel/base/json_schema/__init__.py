"""JSON Schemas that strangers wrote: whether one can be used, and what violates it."""
