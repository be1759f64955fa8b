import { useMutation, useQuery } from "@tanstack/react-query";
import { useRef, useState } from "react";
import {
  answer,
  type Checks,
  client,
  type Subscription,
  type Table,
  type TableBody,
  type TablePatch,
  type TablePlan,
} from "../../api/client";
import { CheckResult } from "../../components/checkResult";
import { Dialog } from "../../components/dialog";
import { ProblemNote } from "../../components/problemNote";
import { effectWords, optionName, optionValue, waitsForReload } from "../../labels/tableOptions";
import { tableName } from "../../labels/tables";
import { checksQuery, collided } from "../wizard/queries";

interface ReviewProps {
  subscription: Subscription;
  table: Table;
  patch: TablePatch;
  /** What the server would do with the patch. */
  plan: TablePlan;
  /** The table as it would be declared. */
  body: TableBody;
  onClose: () => void;
  /** Called once it is saved. `reloading`: a reload was requested, too. */
  onSaved: (reloading: boolean) => void;
}

/** What a change of options does, before it is made. */
export function Review({ subscription, table, patch, plan, body, onClose, onSaved }: ReviewProps) {
  const { source, capture } = subscription;
  const checks = useQuery({
    ...checksQuery({ connection: source, role: "source", tables: [body], capture }),
    select: withoutNotes,
  });
  const waits = waitsForReload(plan.fields);
  const [reloads, setReloads] = useState(true);
  // A reload that is refused can be requested again; the options are saved by then.
  const saved = useRef(false);
  const work = useMutation({
    mutationFn: async () => {
      if (!saved.current) await save(subscription.name, table, patch, plan.etag);
      saved.current = true;
      if (waits && reloads) await reload(subscription.name, table);
    },
    onSuccess: () => onSaved(waits && reloads),
  });
  const close = (): void => (saved.current ? onSaved(false) : onClose());
  const good = checks.data?.ok === true;
  return (
    <Dialog title={`Change options of ${tableName(table)}?`} onClose={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!work.isPending) work.mutate();
        }}
      >
        <ul className="does">
          {plan.fields.map((change) => (
            <li key={change.field}>
              <strong>{optionName(change.field)}</strong>: {optionValue(change.field, change.before)} →{" "}
              {optionValue(change.field, change.after)}; {effectWords(change)}.
            </li>
          ))}
          {plan.new_start && (
            <li>The subscription&apos;s run starts again, which interrupts the replication of all its tables for some seconds.</li>
          )}
        </ul>
        <h3>On the source</h3>
        <CheckResult query={checks} />
        {waits && (
          <label className="check choice">
            <input type="checkbox" checked={reloads} onChange={(event) => setReloads(event.target.checked)} />
            Reload the table now; its old rows stay readable until then
          </label>
        )}
        {work.error !== null && <ProblemNote error={work.error} />}
        <div className="dialog-foot">
          <button type="button" onClick={close} data-first>
            Cancel
          </button>
          <button type="submit" className="primary" disabled={work.isPending || checks.isFetching}>
            {work.isPending ? "Saving …" : good || checks.isFetching ? "Save" : "Save nevertheless"}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** What does not concern the change is left out. */
const withoutNotes = ({ ok, findings }: Checks): Checks => ({ ok, findings: findings.filter(({ severity }) => severity !== "info") });

const reload = (name: string, table: Table): Promise<unknown> =>
  answer(client.POST("/api/v1/subscriptions/{name}/tables/{table_id}/reloads", { params: { path: { name, table_id: table.id } } }));

async function save(name: string, table: Table, body: TablePatch, etag: string): Promise<void> {
  const path = { name, table_id: table.id };
  try {
    await answer(client.PATCH("/api/v1/subscriptions/{name}/tables/{table_id}", { params: { path, header: { "if-match": etag } }, body }));
  } catch (error) {
    throw collided(error, `${tableName(table)} was changed since you reviewed it.`, "Cancel, and review your change again.");
  }
}
