/** What a statement has that is no parameter: comments, quoted texts and names. */
const NO_PARAMETER =
  /--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|'(?:[^']|'')*(?:'|$)|"(?:[^"]|"")*(?:"|$)|\$([A-Za-z_][A-Za-z0-9_]*)?\$[\s\S]*?(?:\$\1\$|$)/g;
const MOST = 100;

/** How many values a statement wants: the greatest number n of a `$n`; at most 100. */
export function parameterCount(sql: string): number {
  const numbers = [...sql.replace(NO_PARAMETER, " ").matchAll(/\$(\d+)/g)].map(([, number]) => Number(number));
  return Math.min(MOST, Math.max(0, ...numbers));
}

/** The value of one parameter, as it is typed. */
export interface Parameter {
  text: string;
  isNull: boolean;
}

export const NO_VALUE: Parameter = { text: "", isNull: false };

/** The values of the parameters that the statement wants, in their order. */
export const parameterValues = (sql: string, typed: readonly Parameter[]): (string | null)[] =>
  Array.from({ length: parameterCount(sql) }, (_, number) => {
    const { text, isNull } = typed[number] ?? NO_VALUE;
    return isNull ? null : text;
  });
