/** From so many digits on, a number of JavaScript may not hold an integer exactly. */
const WIDE_DIGITS = 16;
/** Prefix of the digits of a wide integer while the text is read; no value of a database begins with it. */
const WIDE = "\u0000#";
const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/g;
const INTEGER = /^-?\d+$/;

/** JSON, with integers that JavaScript's numbers may not hold exactly as bigints. Raises what JSON.parse raises. */
export function parseExactly(text: string): unknown {
  const marked = text.replace(TOKEN, (token) =>
    token.length >= WIDE_DIGITS && INTEGER.test(token) ? JSON.stringify(WIDE + token) : token,
  );
  return JSON.parse(marked, (_key, value: unknown) =>
    typeof value === "string" && value.startsWith(WIDE) ? BigInt(value.slice(WIDE.length)) : value,
  );
}

/** A value of JSON as text; `parseExactly` reads the same from it. */
export function writeExactly(value: unknown): string {
  if (typeof value === "bigint") return value.toString();
  if (Array.isArray(value)) return `[${value.map(writeExactly).join(", ")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null";
  return `{${Object.entries(value)
    .map(([name, part]) => `${JSON.stringify(name)}: ${writeExactly(part)}`)
    .join(", ")}}`;
}
