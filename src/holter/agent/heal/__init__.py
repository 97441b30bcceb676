"""What acts inside the training process, and only under `--heal`: each file is one reflex, with what it keeps."""
