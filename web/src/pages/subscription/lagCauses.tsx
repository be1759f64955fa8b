import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { lagExplanationQuery } from "../../api/queries";
import { QueryBoundary } from "../../components/queryBoundary";
import { Remedy } from "../../components/remedy";
import { evidenceWords, LAG_CAUSES, type LagExplanation } from "../../labels/lagCauses";
import { percent, seconds } from "../../labels/numbers";

/** The causes of a subscription's lag, which its engine measures on request. */
export default function LagCauses({ subscription }: { subscription: string }) {
  const [wanted, setWanted] = useState(false);
  const explanation = useQuery({ ...lagExplanationQuery(subscription), enabled: wanted });
  return (
    <details className="more" onToggle={(event) => event.currentTarget.open && setWanted(true)}>
      <summary>Explain the lag</summary>
      {wanted && (
        <>
          <QueryBoundary query={explanation}>{(found) => <Causes found={found} />}</QueryBoundary>
          <p className="below">
            <button type="button" disabled={explanation.isFetching} onClick={() => void explanation.refetch()}>
              {explanation.isFetching ? "Measuring …" : "Measure again"}
            </button>
          </p>
        </>
      )}
    </details>
  );
}

function Causes({ found }: { found: LagExplanation }) {
  if (found.causes.length === 0) return <p className="soft">Nothing lags.</p>;
  return (
    <>
      <p>{`The oldest change that readers do not see is ${seconds(found.lag_ms / 1000)} old.`}</p>
      <table className="ledger">
        <caption className="unseen">Causes of the lag, the largest first</caption>
        <thead>
          <tr>
            <th scope="col">Cause</th>
            <th scope="col" className="number">
              Share
            </th>
            <th scope="col">What was measured, and what to do</th>
          </tr>
        </thead>
        <tbody>
          {found.causes.map((one) => (
            <tr key={one.cause}>
              <th scope="row" data-column="Cause">
                {LAG_CAUSES[one.cause]}
              </th>
              <td data-column="Share" className="number">
                {percent(one.share)}
                <small>{seconds(one.share_ms / 1000)}</small>
              </td>
              <td data-column="What was measured, and what to do" className="telling">
                {one.explanation}
                <small>{evidenceWords(one.evidence)}</small>
                <Remedy text={one.remedy} className="soft" here="subscription" />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}
