const NOT_KNOWN = "–";
const BYTE_UNITS = ["B", "kB", "MB", "GB", "TB", "PB"] as const;

type Maybe = number | null | undefined;

/** A number stays on one line with its unit. */
const SPACE = "\u00a0";

/** A duration given in seconds. */
export function seconds(value: Maybe): string {
  if (value == null) return NOT_KNOWN;
  if (value < 10) return `${value.toFixed(1)}${SPACE}s`;
  if (value < 120) return `${Math.round(value)}${SPACE}s`;
  if (value < 7_200) return `${Math.round(value / 60)}${SPACE}min`;
  if (value < 172_800) return `${(value / 3_600).toFixed(1)}${SPACE}h`;
  return `${Math.round(value / 86_400)}${SPACE}days`;
}

/** In powers of 1000. */
export function bytes(value: Maybe): string {
  if (value == null) return NOT_KNOWN;
  let rest = value;
  let unit = 0;
  while (rest >= 1000 && unit < BYTE_UNITS.length - 1) {
    rest /= 1000;
    unit += 1;
  }
  return `${unit === 0 || rest >= 100 ? Math.round(rest) : rest.toFixed(1)}${SPACE}${BYTE_UNITS[unit] ?? ""}`;
}

/** "of 17.2 GB", behind a share. */
export const ofBytes = (value: Maybe): string => `of${SPACE}${bytes(value)}`;

export const count = (value: Maybe): string => (value == null ? NOT_KNOWN : value.toLocaleString("en-US"));

/** Of a share from 0 to 1. */
export const percent = (share: number): string => (share > 0 && share < 0.01 ? `<${SPACE}1${SPACE}%` : `${Math.round(share * 100)}${SPACE}%`);

/** "1 table", "20 tables". */
export const some = (number: number, noun: string): string => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
