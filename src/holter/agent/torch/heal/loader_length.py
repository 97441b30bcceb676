"""What `len(loader)` says where batches are handed out in parts."""

import sys

from ...heal.divided_by import is_divisor
from .loader_pass import bounds_of


class Lengths:
    """Asked in place of a loader's own `__len__`."""

    def __init__(self, split):
        self.split = split

    def length(self, loader, length):
        """While a pass is under way, its iterations; otherwise the batches, which schedules are made for.

        After a pass, a sum over its iterations is divided by as many.
        """
        for course in list(self.split.courses.values()):
            if course.open and course.loader() is loader and (course.cut or course.extra):
                self.split.once.asked_length = True
                return course.handed + course.to_come + self._still(course, loader, length)
        lesson = self.split.lessons.get(loader)
        if lesson is not None and lesson.iterations and is_divisor(sys._getframe(2)):
            return lesson.iterations
        return length

    def _still(self, course, loader, length):
        """Iterations of the batches that have not been drawn."""
        batches = length - course.drawn
        if batches < 1 or course.lesson.off:
            return batches
        return (batches - 1) * self.split.parts + self._parts_of_last(loader, length)

    def _parts_of_last(self, loader, length):
        try:
            size = len(loader.dataset) - (length - 1) * loader.batch_size
        except TypeError:
            return self.split.parts
        if loader.drop_last or not 0 < size < loader.batch_size:
            return self.split.parts
        return len(bounds_of(size, self.split.parts, self.split.fewest(), False))
