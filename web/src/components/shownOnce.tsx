import { useEffect, useId, useRef, useState } from "react";

interface ShownOnceProps {
  /** Whose it is, and what to do with it. */
  text: string;
  label: string;
  secret: string;
  /** Of the button that leaves: that one has it. */
  taken: string;
  onDone: () => void;
}

/** A secret that was just made: the only time that it is shown. */
export function ShownOnce({ text, label, secret, taken, onDone }: ShownOnceProps) {
  const id = useId();
  const field = useRef<HTMLInputElement>(null);
  const [copied, setCopied] = useState(false);
  useEffect(() => field.current?.select(), []);
  const copy = async (): Promise<void> => {
    field.current?.select();
    try {
      await navigator.clipboard.writeText(secret);
      setCopied(true);
    } catch {
      // Browsers allow it on secure addresses only; the secret is selected for copying by hand.
    }
  };
  return (
    <div className="new-key">
      <p className="prose">{text}</p>
      <label htmlFor={id}>{label}</label>
      <input ref={field} id={id} className="code" readOnly value={secret} onFocus={(event) => event.target.select()} />
      <div className="form-foot">
        <button type="button" onClick={() => void copy()}>
          Copy
        </button>
        <button type="button" className="primary" onClick={onDone}>
          {taken}
        </button>
        <span className="soft" role="status">
          {copied && "It was copied."}
        </span>
      </div>
    </div>
  );
}
