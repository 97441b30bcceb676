"""What may keep a patient from being run here."""


class CannotBeMade(Exception):
    """A limit that the sidecar asks for can't be had on this machine; the patient is skipped with this reason."""
