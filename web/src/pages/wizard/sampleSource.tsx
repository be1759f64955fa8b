import { useMutation, useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import type { Action } from "../../actions";
import { NEW_SUBSCRIPTION } from "../../addresses";
import { answer, client, type SampleSource } from "../../api/client";
import { keys } from "../../api/queries";
import { ActionButtons } from "../../components/actions";
import { ProblemNote } from "../../components/problemNote";
import { StatusBadge } from "../../components/statusBadge";
import { count } from "../../labels/numbers";
import type { Tone } from "../../labels/tone";
import { queryClient } from "../../stream/queryClient";
import { usePermission } from "../../usePermission";
import { sampleKey, sampleQuery } from "./queries";

const STATES: Record<SampleSource["state"], { tone: Tone; word: string }> = {
  unavailable: { tone: "idle", word: "It cannot run here." },
  absent: { tone: "idle", word: "It does not run." },
  starting: { tone: "busy", word: "It is being started, which takes some seconds." },
  running: { tone: "good", word: "It runs." },
  failed: { tone: "bad", word: "It failed." },
};
const UNKNOWN = { tone: "unknown", word: "This console does not know how it is; load the page again after an upgrade." } as const;

/** The sample source: how it is, and what can be done about it. `removable`: also how it is got rid of. */
export function SampleSourcePart({ removable = false }: { removable?: boolean }) {
  const sample = useQuery(sampleQuery());
  const may = usePermission();
  const start = useMutation({
    mutationFn: () => answer(client.PUT("/api/v1/sample-source")),
    onSuccess: async (found) => {
      queryClient.setQueryData(sampleKey, found);
      await queryClient.invalidateQueries({ queryKey: keys.connections });
    },
  });
  if (sample.error !== null && sample.data === undefined) return <ProblemNote error={sample.error} />;
  if (sample.data === undefined) return <p className="soft">Loading …</p>;
  const { state, reason, remedy, transactions, transactions_per_second, connection } = sample.data;
  const { tone, word } = STATES[state] ?? UNKNOWN;
  return (
    <div className="sample">
      {state !== "absent" && (
        <p role="status">
          <StatusBadge tone={tone}>{word}</StatusBadge>{" "}
          {state === "running" && (
            <span className="soft">
              {transactions_per_second} transactions a second, {count(transactions)} so far.
            </span>
          )}
        </p>
      )}
      {reason != null && <pre className="reason">{reason}</pre>}
      {remedy != null && <p className="soft">{remedy}</p>}
      {start.error !== null && <ProblemNote error={start.error} />}
      {may("operator") && (
        <div className="actions">
          {(state === "absent" || state === "failed") && (
            <button type="button" className={removable ? undefined : "primary"} disabled={start.isPending} onClick={() => start.mutate()}>
              {start.isPending ? "Starting …" : state === "failed" ? "Start it again" : "Start the sample database"}
            </button>
          )}
          {state === "running" && (
            <Link href={`${NEW_SUBSCRIPTION}?source=${encodeURIComponent(connection)}`} className={removable ? "button" : "button primary"}>
              Replicate it
            </Link>
          )}
          {removable && state !== "absent" && state !== "unavailable" && <ActionButtons actions={[removal(connection)]} />}
        </div>
      )}
    </div>
  );
}

const removal = (connection: string): Action => ({
  verb: "Remove",
  title: "Remove the sample database?",
  does: [
    "It is stopped, and its connection is deleted.",
    "Subscriptions that use it have to be deleted before; their tables on the target stay.",
  ],
  loses: "All its tables and rows are lost. Another start makes a new one.",
  name: connection,
  serious: true,
  run: () => answer(client.DELETE("/api/v1/sample-source")),
  done: "The sample database was removed.",
});
