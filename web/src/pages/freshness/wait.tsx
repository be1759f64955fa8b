import { type FormEvent, type ReactNode, useState } from "react";
import { type WaitRequest, waitFor } from "../../api/freshness";
import { UnderWay } from "../../components/underWay";
import { typedMs } from "../../labels/durations";
import { useStoppable } from "../../stoppable";
import { Field, PositionField, SecondsField } from "./fields";
import { ReceiptSummary, ReceiptView } from "./receipt";
import { Refusal } from "./refusal";
import { TablePicker } from "./tablePicker";

interface WaitSectionProps {
  subscription: string;
  /** Called to read at this position. */
  onPosition: (position: string) => void;
}

/** Asks the server to answer once changes are visible on the target, and shows what it answered. */
export function WaitSection({ subscription, onPosition }: WaitSectionProps) {
  const waiting = useStoppable((body: WaitRequest, signal) => waitFor(subscription, body, signal));
  return (
    <>
      <WaitForm subscription={subscription} pending={waiting.pending} onWait={waiting.begin}>
        <UnderWay doing="Waiting" verb="Stop waiting" work={waiting} />
      </WaitForm>
      <div className="outcome">
        <div role="status">
          {waiting.stopped && <p className="soft">The wait was stopped. The subscription continues.</p>}
          {waiting.found !== undefined && <ReceiptSummary waited={waiting.found} />}
        </div>
        {waiting.error !== null && <Refusal error={waiting.error} subscription={subscription} />}
        {waiting.found !== undefined && <ReceiptView waited={waiting.found} onPosition={onPosition} />}
      </div>
    </>
  );
}

interface WaitFormProps {
  subscription: string;
  pending: boolean;
  onWait: (body: WaitRequest) => void;
  children: ReactNode;
}

function WaitForm({ subscription, pending, onWait, children }: WaitFormProps) {
  const [upTo, setUpTo] = useState<"now" | "position">("now");
  const [position, setPosition] = useState("");
  const [limit, setLimit] = useState("10");
  const [which, setWhich] = useState<"all" | "some">("all");
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set());
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (pending || (which === "some" && picked.size === 0)) return;
    onWait({
      position: upTo === "position" ? position.trim() : null,
      tables: which === "some" ? [...picked].map((key) => JSON.parse(key) as { schema: string; name: string }) : null,
      timeout_ms: typedMs(limit),
      on_timeout: "error",
    });
  };
  return (
    <form className="ask" onSubmit={submit}>
      <Field legend="Until everything is visible that was committed">
        <label className="check">
          <input type="radio" name="up-to" checked={upTo === "now"} onChange={() => setUpTo("now")} />
          on the source until now
        </label>
        <label className="check">
          <input type="radio" name="up-to" checked={upTo === "position"} onChange={() => setUpTo("position")} />
          up to a position
        </label>
        {upTo === "position" && <PositionField value={position} onChange={setPosition} />}
      </Field>
      <Field legend="In which tables">
        <label className="check">
          <input type="radio" name="which" checked={which === "all"} onChange={() => setWhich("all")} />
          all except paused and parked ones
        </label>
        <label className="check">
          <input type="radio" name="which" checked={which === "some"} onChange={() => setWhich("some")} />
          those that I name
        </label>
        {which === "some" && <TablePicker subscription={subscription} picked={picked} onPick={setPicked} />}
      </Field>
      <SecondsField label="Wait at most" hint="0 does not wait" value={limit} least={0} onChange={setLimit} />
      <div className="ask-foot">
        <button type="submit" className="primary" disabled={which === "some" && picked.size === 0} aria-disabled={pending}>
          Wait
        </button>
        {children}
      </div>
    </form>
  );
}
