/** Units in which durations are typed, in seconds. */
export const UNITS = { seconds: 1, minutes: 60, hours: 3_600, days: 86_400 } as const;
export type Unit = keyof typeof UNITS;

/** A duration as it is typed. */
export interface TypedDuration {
  number: string;
  unit: Unit;
}

/** Whole seconds; NaN if no number was typed. */
export const typedSeconds = ({ number, unit }: TypedDuration): number =>
  number.trim() === "" ? Number.NaN : Math.round(Number(number) * UNITS[unit]);

const LARGEST_FIRST: Unit[] = ["days", "hours", "minutes"];

/** A duration in the largest unit of which it is a whole number. */
export function asTyped(seconds: number): TypedDuration {
  const unit = LARGEST_FIRST.find((each) => seconds % UNITS[each] === 0) ?? "seconds";
  return { number: String(seconds / UNITS[unit]), unit };
}

/** "90 seconds", "1 hour". */
export function durationWords(seconds: number): string {
  const { number, unit } = asTyped(seconds);
  return `${number} ${number === "1" ? unit.slice(0, -1) : unit}`;
}
