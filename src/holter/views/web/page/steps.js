// Which step was on at a time.

// Between two windows of steps evenly; null before the first.
export function stepAt({ times, steps }, time) {
  let low = 0,
    high = times.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (times[mid] <= time) low = mid + 1;
    else high = mid;
  }
  if (low === 0) return null;
  if (low === times.length) return steps[low - 1];
  return (
    steps[low - 1] + ((time - times[low - 1]) / (times[low] - times[low - 1] || 1)) * (steps[low] - steps[low - 1])
  );
}
