import { type FormEvent, useState } from "react";
import { keys } from "../../../api/queries";
import { type SnapshotRequest, takeSnapshot } from "../../../api/snapshots";
import { announce } from "../../../components/announcements";
import { UnderWay } from "../../../components/underWay";
import { typedMs } from "../../../labels/durations";
import { bodyOf, EMPTY, hasTables } from "../../../labels/snapshots";
import { useStoppable } from "../../../stoppable";
import { queryClient } from "../../../stream/queryClient";
import { SecondsField } from "../../freshness/fields";
import { FRESHNESS_MODES, FreshnessField, type FreshnessWish } from "../../freshness/freshnessField";
import { Refusal } from "../../freshness/refusal";
import { OptionFields } from "./options";

/** Requests a snapshot. */
export function TakeSnapshot({ subscription }: { subscription: string }) {
  const [options, setOptions] = useState(EMPTY);
  const [wish, setWish] = useState<FreshnessWish>({ mode: "any", position: "" });
  const [limit, setLimit] = useState("10");
  const [latest, setLatest] = useState(true);
  const work = useStoppable(async (body: SnapshotRequest, signal) => {
    await takeSnapshot(subscription, body, signal);
    announce(`${subscription}: a snapshot was requested.`);
    await queryClient.invalidateQueries({ queryKey: keys.ofSubscription(subscription) });
  });
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (work.pending || !hasTables(options)) return;
    const position = wish.mode === "position" ? wish.position.trim() : null;
    work.begin({ ...bodyOf(options), freshness: { mode: wish.mode, position, timeout_ms: typedMs(limit) }, latest });
  };
  return (
    <form className="ask" onSubmit={submit}>
      <OptionFields subscription={subscription} options={options} onChange={setOptions} />
      <FreshnessField wish={wish} modes={FRESHNESS_MODES} onWish={setWish} />
      <SecondsField label="Maximum wait" value={limit} least={0} disabled={wish.mode === "any"} onChange={setLimit} />
      <label className="check">
        <input type="checkbox" checked={latest} onChange={(event) => setLatest(event.target.checked)} />
        <span>
          Let the link <code>latest-{options.format}</code> lead to it
        </span>
      </label>
      <div className="ask-foot">
        <button type="submit" className="primary" disabled={!hasTables(options)} aria-disabled={work.pending}>
          Take a snapshot
        </button>
        <UnderWay doing="Waiting" verb="Cancel" work={work} />
      </div>
      {work.error !== null && (
        <div className="whole">
          <Refusal error={work.error} subscription={subscription} />
        </div>
      )}
    </form>
  );
}
