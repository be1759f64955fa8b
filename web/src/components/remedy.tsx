import { type Place, plainRemedy } from "../labels/remedies";

interface RemedyProps {
  text: string;
  className?: string;
  /** The page that shows it. */
  here?: Place;
}

/** What can be done, by buttons where there are some; the calls that they make are there for who does it by the API. */
export function Remedy({ text, className, here }: RemedyProps) {
  const { words, calls } = plainRemedy(text, here);
  return (
    <>
      <p className={className}>{words}</p>
      {calls.length > 0 && (
        <details className="calls">
          <summary>By the API</summary>
          {calls.map((call) => (
            <code key={call}>{call}</code>
          ))}
        </details>
      )}
    </>
  );
}
