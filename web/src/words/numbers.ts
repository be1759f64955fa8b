const NOT_KNOWN = "–";
const BYTE_UNITS = ["B", "kB", "MB", "GB", "TB", "PB"] as const;

type Maybe = number | null | undefined;

/** A duration given in seconds. */
export function seconds(value: Maybe): string {
  if (value == null) return NOT_KNOWN;
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7_200) return `${Math.round(value / 60)} min`;
  if (value < 172_800) return `${(value / 3_600).toFixed(1)} h`;
  return `${Math.round(value / 86_400)} days`;
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
  return `${unit === 0 || rest >= 100 ? Math.round(rest) : rest.toFixed(1)} ${BYTE_UNITS[unit] ?? ""}`;
}

export const count = (value: Maybe): string => (value == null ? NOT_KNOWN : value.toLocaleString("en-US"));

/** Of a share from 0 to 1. */
export const percent = (share: number): string => (share > 0 && share < 0.01 ? "< 1 %" : `${Math.round(share * 100)} %`);

/** "1 table", "20 tables". */
export const some = (number: number, noun: string): string => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
