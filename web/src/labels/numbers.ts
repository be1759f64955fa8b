const NOT_KNOWN = "–";
/** Powers of 1,024, as budgets are declared and as the command line and the server's sentences have them. */
const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] as const;

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

/** "512 B", "1.5 MiB", "16 GiB". */
export function bytes(value: Maybe): string {
  if (value == null) return NOT_KNOWN;
  let rest = value;
  let unit = 0;
  // What would be rounded to 1024 is one of the next unit.
  while (rest >= (unit === 0 ? 999.5 : 1023.5) && unit < BYTE_UNITS.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || rest >= 100 ? 0 : 1;
  return `${tieToEven(rest, digits).toFixed(digits).replace(/\.0$/, "")}${SPACE}${BYTE_UNITS[unit] ?? ""}`;
}

/** The value, or where it is half way between two numbers of so many digits, 0 or 1, the even one: the server rounds so. */
function tieToEven(value: number, digits: 0 | 1): number {
  const scaled = value * 10 ** digits;
  const low = Math.floor(scaled);
  // Only quarters can be half way between two tenths; what else looks so after the product is not.
  const isTie = scaled - low === 0.5 && Number.isInteger(value * 4);
  return isTie ? (low + (low % 2)) / 10 ** digits : value;
}

/** "of 16 GiB", behind a share. */
export const ofBytes = (value: Maybe): string => `of${SPACE}${bytes(value)}`;

export const count = (value: Maybe): string => (value == null ? NOT_KNOWN : value.toLocaleString("en-US"));

/** Of a share from 0 to 1. */
export const percent = (share: number): string =>
  share > 0 && share < 0.01 ? `<${SPACE}1${SPACE}%` : `${Math.round(share * 100)}${SPACE}%`;

/** "1 table", "20 tables". */
export const some = (number: number, noun: string): string => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
