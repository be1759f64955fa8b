import { link, type Link } from "../live/connection";
import { readAt } from "../live/queryClient";
import { useMay } from "../caller";
import { useStore } from "../store";
import type { Tone } from "../words/tone";
import { Mark } from "./mark";
import { Moment } from "./time";

const LINKS: Record<Link, { tone: Tone; word: string }> = {
  connecting: { tone: "busy", word: "connecting" },
  live: { tone: "good", word: "live" },
  reconnecting: { tone: "warn", word: "reconnecting" },
};

/** Whether news arrive by themselves, and when something was read last. Only a change of the first is announced. */
export function LiveMark() {
  const now = useStore(link);
  const { tone, word } = LINKS[now];
  const last = useStore(readAt);
  const may = useMay();
  return (
    <div className="live" data-link={now}>
      <span role="status">
        <Mark tone={tone}>{word}</Mark>
      </span>
      {last !== null && (
        <span className="soft">
          last updated <Moment at={last} parts="time" />
        </span>
      )}
      {!may("operator") && <span className="soft">to look only</span>}
    </div>
  );
}
