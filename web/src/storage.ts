/** The browser's storage as far as it may be used: where it is forbidden, nothing is kept and nothing breaks. */
type Area = "session" | "local";

function area(name: Area): Storage | null {
  try {
    return name === "session" ? window.sessionStorage : window.localStorage;
  } catch {
    return null;
  }
}

export const recall = (where: Area, key: string): string | null => area(where)?.getItem(key) ?? null;

/** Null forgets what is kept. */
export function keep(where: Area, key: string, value: string | null): void {
  try {
    if (value === null) area(where)?.removeItem(key);
    else area(where)?.setItem(key, value);
  } catch {
    // It is full; what was to be kept holds for this page then.
  }
}
