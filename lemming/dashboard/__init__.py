"""The page of `lemming dash`: a small web server on this machine, and the files that a browser is given."""
