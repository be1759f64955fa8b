-- Texts that have to be quoted in an array, in SQL or anywhere fill the rows from before.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY);
INSERT INTO t VALUES (1), (2);
-- workload
ALTER TABLE t
  ADD COLUMN empty text DEFAULT '',
  ADD COLUMN word_null text DEFAULT 'NULL',
  ADD COLUMN quotes text DEFAULT 'it''s "quoted"',
  ADD COLUMN backslashes text DEFAULT 'a\b\\c',
  ADD COLUMN braces text DEFAULT '{a,b}',
  ADD COLUMN comma text DEFAULT 'a, b; c',
  ADD COLUMN spaces text DEFAULT '  both  ',
  ADD COLUMN lines text DEFAULT E'one\ntwo\ttab',
  ADD COLUMN foreign_words text DEFAULT '日本 ünï ẞ',
  ADD COLUMN percent text DEFAULT '100 % $1 ;--',
  ADD COLUMN letter "char" DEFAULT 'x';
-- wait
INSERT INTO t (id) VALUES (3);
-- expected t: live
--   id | empty | word_null | quotes        | backslashes | braces | comma   | spaces   | lines        | foreign_words | percent      | letter
--   1  | ''    | 'NULL'    | it's "quoted" | a\b\\c      | {a,b}  | a, b; c |   both   | one\ntwo	tab | 日本 ünï ẞ      | 100 % $1 ;-- | x
--   2  | ''    | 'NULL'    | it's "quoted" | a\b\\c      | {a,b}  | a, b; c |   both   | one\ntwo	tab | 日本 ünï ẞ      | 100 % $1 ;-- | x
--   3  | ''    | 'NULL'    | it's "quoted" | a\b\\c      | {a,b}  | a, b; c |   both   | one\ntwo	tab | 日本 ünï ẞ      | 100 % $1 ;-- | x
-- history t:
--   column empty was added
--   column word_null was added
--   column quotes was added
--   column backslashes was added
--   column braces was added
--   column comma was added
--   column spaces was added
--   column lines was added
--   column foreign_words was added
--   column percent was added
--   column letter was added
