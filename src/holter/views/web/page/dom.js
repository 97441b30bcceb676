// Elements, made so that text stays text: nothing here takes markup.

export function h(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("aria-")) made.setAttribute(name, String(value));
    else if (value === false) continue;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(
    ...children
      .flat(Infinity)
      .filter((child) => child !== null && child !== undefined && child !== false && child !== ""),
  );
  return made;
}

export function fill(parent, ...children) {
  parent.replaceChildren(...children.flat(Infinity).filter(Boolean));
  return parent;
}

export const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A sentence with names in backticks: the names are set as code.
export const prose = (text) => text.split(/`([^`]+)`/).map((part, n) => (n % 2 ? h("code", {}, part) : part));

// The heartbeat of the name: one beat, drawn once.
export function beat() {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 46 20");
  svg.setAttribute("class", "beat");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", "M0 12h11l3-4 3 4h3l2 3 4-14 4 18 2-7h3l3-3 3 3h5");
  svg.append(path);
  return svg;
}
