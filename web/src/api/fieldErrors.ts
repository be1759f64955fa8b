import { Problem } from "./problem";

interface FieldError {
  pointer: string;
  detail: string;
}

const isFieldError = (found: unknown): found is FieldError =>
  typeof found === "object" && found !== null && "pointer" in found && "detail" in found && typeof found.detail === "string";

/** What the server says of one part of a request's body, and of the parts within it; null where it says nothing. `pointer`: as in JSON pointers. */
export function fieldError(error: unknown, pointer: string): string | null {
  const errors = error instanceof Problem && Array.isArray(error.body.errors) ? error.body.errors.filter(isFieldError) : [];
  const found = errors.filter((each) => each.pointer === pointer || each.pointer.startsWith(`${pointer}/`));
  return found.length === 0 ? null : found.map(({ detail }) => `${detail.charAt(0).toUpperCase()}${detail.slice(1)}`).join(" ");
}
