import { useMutation, useQuery } from "@tanstack/react-query";
import { type FormEvent, useId, useState } from "react";
import type { Action } from "../../../actions";
import { keys } from "../../../api/queries";
import { removeSchedule, type SnapshotScheduleView, snapshotScheduleQuery, storeSchedule } from "../../../api/snapshots";
import { ActionButtons } from "../../../components/actions";
import { announce } from "../../../components/announcements";
import { DurationField } from "../../../components/durationField";
import { Fact, Facts } from "../../../components/facts";
import { ProblemNote } from "../../../components/problemNote";
import { QueryBoundary } from "../../../components/queryBoundary";
import { Moment } from "../../../components/time";
import { count } from "../../../labels/numbers";
import { formatWords, hasTables, NEW_SCHEDULE, scheduleBody, type TypedSchedule, typedOf } from "../../../labels/snapshots";
import { qualified } from "../../../labels/tables";
import { durationWords } from "../../../labels/typedDuration";
import { queryClient } from "../../../stream/queryClient";
import { usePermission } from "../../../usePermission";
import { OptionFields } from "./options";

const LEAST_INTERVAL_S = 10;
const MOST_INTERVAL_S = 30 * 86_400;
const MOST_KEPT = 1_000;

/** When snapshots are taken by themselves, and how many of them stay. */
export function Schedule({ subscription }: { subscription: string }) {
  const schedule = useQuery(snapshotScheduleQuery(subscription));
  return <QueryBoundary query={schedule}>{(present) => <Present subscription={subscription} present={present} />}</QueryBoundary>;
}

function Present({ subscription, present }: { subscription: string; present: SnapshotScheduleView | null }) {
  const mayChange = usePermission()("operator");
  const [typed, setTyped] = useState<TypedSchedule | null>(null);
  return (
    <>
      {present === null ? <p className="soft">No snapshots are taken by themselves.</p> : <Declared schedule={present} />}
      {mayChange && typed === null && (
        <div className="actions below">
          <button type="button" onClick={() => setTyped(present === null ? NEW_SCHEDULE : typedOf(present))}>
            {present === null ? "Set a schedule" : "Change the schedule"}
          </button>
          {present !== null && <ActionButtons actions={[removing(subscription)]} />}
        </div>
      )}
      {mayChange && typed !== null && (
        <ScheduleForm subscription={subscription} typed={typed} onType={setTyped} onLeave={() => setTyped(null)} />
      )}
    </>
  );
}

function Declared({ schedule }: { schedule: SnapshotScheduleView }) {
  const { interval_seconds, keep, format, tables, on_unavailable, limit_seconds, next_at } = schedule;
  return (
    <Facts>
      <Fact name="Taken every">{durationWords(interval_seconds)}</Fact>
      <Fact name="Kept" note="of the schedule's own">
        the newest {count(keep)}
      </Fact>
      <Fact name="Format">{formatWords(format ?? "")}</Fact>
      <Fact name="Tables" note={on_unavailable === "leave_out" ? "without those that are not live" : "fails if one is not live"}>
        {tables == null ? "all" : tables.map(qualified).join(", ")}
      </Fact>
      {limit_seconds !== undefined && <Fact name="Maximum time">{durationWords(limit_seconds)}</Fact>}
      <Fact name="Next">
        <Moment at={next_at} />
      </Fact>
    </Facts>
  );
}

interface ScheduleFormProps {
  subscription: string;
  typed: TypedSchedule;
  onType: (typed: TypedSchedule) => void;
  onLeave: () => void;
}

function ScheduleForm({ subscription, typed, onType, onLeave }: ScheduleFormProps) {
  const id = useId();
  const set = (changes: Partial<TypedSchedule>): void => onType({ ...typed, ...changes });
  const save = useMutation({
    mutationFn: () => storeSchedule(subscription, scheduleBody(typed)),
    onSuccess: async () => {
      announce(`${subscription}: the schedule of snapshots was stored.`);
      await queryClient.invalidateQueries({ queryKey: keys.ofSubscription(subscription) });
      onLeave();
    },
  });
  const ready = hasTables(typed.options) && !save.isPending;
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (ready) save.mutate();
  };
  return (
    <form className="ask" aria-label="Schedule" onSubmit={submit}>
      <div className="limits">
        <DurationField
          label="Taken every"
          value={typed.every}
          least={LEAST_INTERVAL_S}
          most={MOST_INTERVAL_S}
          onChange={(every) => set({ every })}
        />
        <div className="typed">
          <label htmlFor={id}>Kept</label>
          <span className="with-unit">
            <input
              id={id}
              type="number"
              inputMode="numeric"
              min={1}
              max={MOST_KEPT}
              required
              value={typed.keep}
              aria-describedby={`${id}-hint`}
              onChange={(event) => set({ keep: event.target.value })}
            />
            <span id={`${id}-hint`} className="soft">
              snapshots; older ones of the schedule are deleted
            </span>
          </span>
        </div>
      </div>
      <OptionFields subscription={subscription} options={typed.options} onChange={(options) => set({ options })} />
      <div className="ask-foot">
        <button type="submit" className="primary" disabled={!ready}>
          {save.isPending ? "Storing …" : "Save"}
        </button>
        <button type="button" className="quiet" onClick={onLeave}>
          Cancel
        </button>
      </div>
      {save.error !== null && (
        <div className="whole">
          <ProblemNote error={save.error} />
        </div>
      )}
    </form>
  );
}

const removing = (subscription: string): Action => ({
  verb: "Remove",
  title: `Remove the schedule of ${subscription}?`,
  does: ["No more snapshots are taken by themselves.", "Its snapshots stay until they are deleted."],
  name: `the schedule of ${subscription}`,
  run: () => removeSchedule(subscription),
  done: `${subscription}: the schedule of snapshots was removed.`,
});
