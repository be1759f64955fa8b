import { useNow } from "../clock";
import { type Zone, zone } from "../display";
import { seconds } from "../labels/numbers";
import { useStore } from "../store";

type Parts = "time" | "both";

function format(moment: Date, where: Zone, parts: Parts): string {
  const timeZone = where === "UTC" ? "UTC" : undefined;
  const time = moment.toLocaleTimeString("en-GB", { timeZone });
  if (parts === "time") return time;
  // Swedish dates are written as ISO 8601 has them.
  return `${moment.toLocaleDateString("sv-SE", { timeZone })} ${time}${where === "UTC" ? " UTC" : ""}`;
}

/** A moment as `2026-05-04 10:00:00`, or its time alone; in the zone that the reader chose. */
export function Moment({ at, parts = "both" }: { at: string | number; parts?: Parts }) {
  const where = useStore(zone);
  const moment = new Date(at);
  if (Number.isNaN(moment.getTime())) return <span>unknown</span>;
  return <time dateTime={moment.toISOString()}>{format(moment, where, parts)}</time>;
}

/** How long ago a moment is; its exact time is shown on hovering. */
export function Ago({ at }: { at: string | null | undefined }) {
  const present = useNow(5_000);
  const where = useStore(zone);
  if (at == null) return <span>–</span>;
  const moment = new Date(at);
  const age = Math.max(0, (present - moment.getTime()) / 1000);
  return (
    <time dateTime={moment.toISOString()} title={format(moment, where, "both")}>
      {age < 5 ? "just now" : `${age < 120 ? `${Math.round(age / 5) * 5} s` : seconds(age)} ago`}
    </time>
  );
}
