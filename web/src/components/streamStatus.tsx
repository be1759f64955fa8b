import type { Tone } from "../labels/tone";
import { useStore } from "../store";
import { type Link, link } from "../stream/connection";
import { readAt } from "../stream/queryClient";
import { usePermission } from "../usePermission";
import { StatusBadge } from "./statusBadge";
import { Moment } from "./time";

const LINKS: Record<Link, { tone: Tone; word: string }> = {
  connecting: { tone: "busy", word: "connecting" },
  live: { tone: "good", word: "live" },
  reconnecting: { tone: "warn", word: "reconnecting" },
};

/** Whether the stream of events is open, and when something was last read. Screen readers announce only a change of the former. */
export function StreamStatus() {
  const now = useStore(link);
  const { tone, word } = LINKS[now];
  const last = useStore(readAt);
  const may = usePermission();
  return (
    <div className="stream-status" data-link={now}>
      <span role="status">
        <StatusBadge tone={tone}>{word}</StatusBadge>
      </span>
      {last !== null && (
        <span className="soft">
          last updated <Moment at={last} parts="time" />
        </span>
      )}
      {!may("operator") && <span className="soft">read-only</span>}
    </div>
  );
}
