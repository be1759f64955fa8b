import { useNow } from "../clock";

interface UnderWayProps {
  /** What is being done, as "Waiting". */
  doing: string;
  verb: string;
  work: { pending: boolean; begunAt: number; stop: () => void };
}

/** Beside a form's button: what is under way, for how long, and the way to end it. Nothing while nothing is. */
export function UnderWay({ doing, verb, work }: UnderWayProps) {
  return (
    <>
      {work.pending && (
        <button
          type="button"
          onClick={({ currentTarget }) => {
            // It goes away; who pressed it by the keyboard goes on from where the work was begun.
            currentTarget.form?.querySelector<HTMLElement>("[type=submit]")?.focus();
            work.stop();
          }}
        >
          {verb}
        </button>
      )}
      <span className="soft" role="status">
        {work.pending && `${doing} …`}
      </span>
      {work.pending && <Elapsed since={work.begunAt} />}
    </>
  );
}

/** Passing seconds are not read out. */
function Elapsed({ since }: { since: number }) {
  const present = useNow(250);
  return (
    <span className="soft" aria-hidden="true">
      {Math.max(0, Math.floor((present - since) / 1000))} s
    </span>
  );
}
