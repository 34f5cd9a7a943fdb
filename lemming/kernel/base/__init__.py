"""What everything stands on: words, names, moments and limits. Pure; knows no organisation."""
