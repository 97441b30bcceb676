"""`holter watch`: the runs in a terminal, live, drawn with Textual. It only reads."""
