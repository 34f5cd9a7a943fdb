"""Whether what files limit, grant and believe is about what there is: what is not blocks."""
