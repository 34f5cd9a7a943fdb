"""Page of `lemming dash`: a local web server, and the files for the browser."""
