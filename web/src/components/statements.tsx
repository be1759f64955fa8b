import { announce } from "./announcements";

/** SQL to be read, and taken elsewhere. */
export function Statements({ name, sql }: { name: string; sql: string[] }) {
  const text = sql.map((statement) => `${statement.trim().replace(/;$/, "")};`).join("\n");
  // Browsers offer the clipboard only to pages that came safely.
  const clipboard: Clipboard | undefined = navigator.clipboard;
  const copy = (): void =>
    void clipboard?.writeText(text).then(
      () => announce(`${name}: the statements are in the clipboard.`),
      () => announce(`${name}: the browser does not let them be copied.`),
    );
  return (
    <div className="statements">
      <pre tabIndex={0} role="group" aria-label={name}>
        {text}
      </pre>
      {clipboard !== undefined && (
        <button type="button" onClick={copy} aria-label={`Copy: ${name}`}>
          Copy
        </button>
      )}
    </div>
  );
}
