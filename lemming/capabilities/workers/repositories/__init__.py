"""The git side of workers: private clones, patches, merges. Git is run by its command line, never inside a clone."""
