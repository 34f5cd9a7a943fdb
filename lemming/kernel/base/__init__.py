"""Foundation of the kernel: texts, names, times and limits. Pure; independent of any organisation."""
