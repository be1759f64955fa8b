import type { Event } from "../api/client";
import type { Tone } from "../words/tone";
import { Mark } from "./mark";
import { Moment } from "./time";

const TONES: Record<string, Tone> = { error: "bad", warning: "warn", info: "note" };

/** Events, newest first. */
export function EventList({ events }: { events: Event[] }) {
  if (events.length === 0) return <p className="soft">Nothing has happened yet.</p>;
  return (
    <ol className="events">
      {events.map((event) => (
        <li key={event.id}>
          <span className="when">
            <Moment at={event.at} />
          </span>
          <Mark tone={TONES[event.severity] ?? "unknown"}>{event.severity}</Mark>
          <div>
            <p>{event.detail}</p>
            {event.remedy != null && <p className="soft">{event.remedy}</p>}
          </div>
        </li>
      ))}
    </ol>
  );
}
