import { useQuery } from "@tanstack/react-query";
import { type RefObject, useState } from "react";
import type { Subscription } from "../../api/client";
import { type QueryAnswer, type QueryRequest, runQuery } from "../../api/freshness";
import { Problem } from "../../api/problem";
import { callerQuery } from "../../api/queries";
import { UnderWay } from "../../components/underWay";
import { some } from "../../labels/numbers";
import { type PastQuery, rememberQuery } from "../../queryHistory";
import { useStoppable } from "../../stoppable";
import { AnswerSummary, AnswerView } from "./answer";
import { Download } from "./download";
import { PastQueries } from "./pastQueries";
import { type Draft, EMPTY, QueryForm, type QueryWish } from "./queryForm";
import { Refusal } from "./refusal";
import { SchemaBrowser } from "./schemaBrowser";

interface QuerySectionProps {
  subscription: Subscription;
  wish: QueryWish;
  onWish: (wish: QueryWish) => void;
  sqlBox: RefObject<HTMLTextAreaElement | null>;
}

/** Runs one read on the target, as fresh as asked for, and shows its rows. Beside it are the tables that can be read, and earlier queries. */
export function QuerySection({ subscription, wish, onWish, sqlBox }: QuerySectionProps) {
  const { name } = subscription;
  const [draft, setDraft] = useState<Draft>(EMPTY);
  const caller = useQuery(callerQuery()).data?.name ?? "";
  const query = useStoppable(async (body: QueryRequest, signal) => {
    const begun = performance.now();
    const remember = (ended: string): void => rememberQuery(pastQuery(caller, name, body, ended));
    let answer: QueryAnswer;
    try {
      answer = await runQuery(name, body, signal);
    } catch (error) {
      remember(signal.aborted ? "cancelled" : Problem.from(error).code);
      throw error;
    }
    remember(`${some(answer.rows.length, "row")}${answer.truncated ? " and more" : ""}`);
    return { answer, body, begun, tookMs: performance.now() - begun };
  });
  const insert = (text: string): void => {
    if (sqlBox.current !== null) setDraft({ ...draft, sql: insertedInto(sqlBox.current, text) });
  };
  const takeUp = ({ sql, freshness, readPoint }: PastQuery): void => {
    setDraft({
      ...draft,
      sql,
      onTimeout: freshness.on_timeout ?? "error",
      onUnavailable: freshness.on_unavailable ?? "error",
      refuseEarly: freshness.refuse_early ?? false,
    });
    // A position of that time is covered by every later answer; the state of a read point is not.
    if (readPoint != null) onWish({ ...wish, mode: "read_point", readPoint });
    else onWish({ ...wish, mode: freshness.mode === "position" ? "latest" : (freshness.mode ?? "any") });
    sqlBox.current?.focus();
  };
  return (
    <div className="query-desk">
      <div>
        <QueryForm
          subscription={name}
          draft={draft}
          onDraft={setDraft}
          wish={wish}
          onWish={onWish}
          sqlBox={sqlBox}
          pending={query.pending}
          onRun={query.begin}
        >
          <UnderWay doing="Asking" verb="Cancel" work={query} />
        </QueryForm>
        <div className="outcome">
          <div role="status">
            {query.stopped && <p className="soft">Its answer is not waited for any more.</p>}
            {query.found !== undefined && <AnswerSummary answer={query.found.answer} />}
          </div>
          {query.error !== null && <Refusal error={query.error} subscription={name} />}
          {query.found !== undefined && (
            // Not by the server's clock, whose offset is corrected meanwhile.
            <div key={query.found.begun}>
              <AnswerView
                subscription={subscription}
                answer={query.found.answer}
                readPoint={query.found.body.read_point ?? null}
                tookMs={query.found.tookMs}
              />
              <Download subscription={name} body={query.found.body} />
            </div>
          )}
        </div>
      </div>
      <div className="query-aside">
        <SchemaBrowser subscription={name} onInsert={insert} />
        <PastQueries caller={caller} subscription={name} onTake={takeUp} />
      </div>
    </div>
  );
}

function pastQuery(caller: string, subscription: string, { sql, freshness = {}, read_point }: QueryRequest, ended: string): PastQuery {
  const { mode, on_timeout, on_unavailable, refuse_early } = freshness;
  const kept = { mode, on_timeout, on_unavailable, refuse_early };
  return { caller, subscription, sql, freshness: kept, readPoint: read_point ?? null, at: new Date().toISOString(), ended };
}

/** The statement with the text in place of what is selected, set off by blanks; the text box gets the focus, after it. */
function insertedInto(box: HTMLTextAreaElement, text: string): string {
  const before = box.value.slice(0, box.selectionStart);
  const apart = before === "" || /[\s(,.]$/.test(before) ? "" : " ";
  const behind = /^[\w"']/.test(box.value.slice(box.selectionEnd)) ? " " : "";
  box.focus();
  box.setRangeText(`${apart}${text}${behind}`, box.selectionStart, box.selectionEnd, "end");
  return box.value;
}
