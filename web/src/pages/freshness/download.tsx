import { type DownloadFormat, downloadAnswer, type QueryRequest } from "../../api/freshness";
import { UnderWay } from "../../components/underWay";
import { bytes } from "../../labels/numbers";
import { useStoppable } from "../../stoppable";
import { Refusal } from "./refusal";

const FORMATS: [DownloadFormat, string][] = [
  ["csv", "CSV"],
  ["json", "JSON"],
  ["arrow", "Arrow"],
  ["parquet", "Parquet"],
];

interface DownloadProps {
  subscription: string;
  /** The query whose answer is shown. */
  body: QueryRequest;
}

/** Saves all rows of a query as a file. It runs again: an answer on the page may be cut. */
export function Download({ subscription, body }: DownloadProps) {
  const work = useStoppable(async (format: DownloadFormat, signal) => {
    const { file, ...found } = await downloadAnswer(subscription, body, format, signal);
    const name = `${subscription}-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.${format}`;
    save(file, name);
    return { name, size: file.size, ...found };
  });
  return (
    <form className="download" onSubmit={(event) => event.preventDefault()}>
      <fieldset>
        <legend>Run it again, and save all rows</legend>
        {FORMATS.map(([format, label], at) => (
          <button
            key={format}
            type={at === 0 ? "submit" : "button"}
            aria-disabled={work.pending}
            onClick={() => !work.pending && work.begin(format)}
          >
            {label}
          </button>
        ))}
        <UnderWay doing="Reading" verb="Cancel" work={work} />
      </fieldset>
      <p role="status">
        {work.found !== undefined && (
          <>
            {work.found.name}, {bytes(work.found.size)}; its rows are of the position <code>{work.found.position}</code>
            {work.found.notes.length > 0 && `; ${work.found.notes.join("; ")}`}.
          </>
        )}
      </p>
      {work.error !== null && <Refusal error={work.error} subscription={subscription} />}
    </form>
  );
}

/** Has the browser save the file, as a link to one does. */
function save(file: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  // The browser has begun to read it by then.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
