import { Ago } from "../../components/time";
import { count } from "../../labels/numbers";
import { forgetQueries, type PastQuery, queriesOf, queryHistory } from "../../queryHistory";
import { useStore } from "../../store";

interface PastQueriesProps {
  caller: string;
  subscription: string;
  /** Called to put it into the form. */
  onTake: (query: PastQuery) => void;
}

/** Earlier queries of this browser on the subscription. */
export function PastQueries({ caller, subscription, onTake }: PastQueriesProps) {
  const queries = queriesOf(useStore(queryHistory), caller, subscription);
  return (
    <section className="past-queries" aria-labelledby="past-queries">
      <h3 id="past-queries">Earlier queries</h3>
      {queries.length === 0 ? (
        <p className="soft">None. This browser keeps their text, but neither rows nor values of parameters.</p>
      ) : (
        <>
          <ol>
            {queries.map((query) => (
              <li key={query.sql}>
                <button type="button" className="link code" onClick={() => onTake(query)}>
                  {query.sql}
                </button>
                <small className="soft">
                  <Ago at={query.at} />; {query.ended}
                  {query.readPoint != null && ` at the read point ${query.readPoint}`}
                </small>
              </li>
            ))}
          </ol>
          <p>
            <small className="soft">{count(queries.length)} kept in this browser, without rows and values of parameters.</small>
            <button type="button" className="quiet" onClick={() => forgetQueries(caller, subscription)}>
              Clear
            </button>
          </p>
        </>
      )}
    </section>
  );
}
