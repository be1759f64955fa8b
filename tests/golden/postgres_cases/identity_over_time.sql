-- A key that lets no spans overlap identifies rows, by itself, by name, and beside whole rows.
-- replicate by_key
-- replicate by_index
-- replicate whole
-- replicate inserted insert_only
-- setup
CREATE TABLE by_key (id int4range, valid daterange, a text, PRIMARY KEY (id, valid WITHOUT OVERLAPS));
CREATE TABLE by_index (id int4range NOT NULL, valid daterange NOT NULL, a text, CONSTRAINT apart UNIQUE (id, valid WITHOUT OVERLAPS));
ALTER TABLE by_index REPLICA IDENTITY USING INDEX apart;
CREATE TABLE whole (id int4range, valid daterange, a text, PRIMARY KEY (id, valid WITHOUT OVERLAPS));
ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE inserted (id int4range, valid daterange, a text, UNIQUE (id, valid WITHOUT OVERLAPS));
INSERT INTO by_key VALUES ('[1,2)', '[2000-01-01,2010-01-01)', 'a');
INSERT INTO by_index SELECT * FROM by_key;
INSERT INTO whole SELECT * FROM by_key;
INSERT INTO inserted SELECT * FROM by_key;
-- workload
INSERT INTO by_key VALUES ('[2,3)', '[2000-01-01,2010-01-01)', 'a'), ('[3,4)', '[2000-01-01,2010-01-01)', 'a'), ('[3,4)', '[2010-01-01,)', 'b');
INSERT INTO by_index SELECT * FROM by_key WHERE id <> '[1,2)';
INSERT INTO whole SELECT * FROM by_key WHERE id <> '[1,2)';
INSERT INTO inserted SELECT * FROM by_key WHERE id <> '[1,2)';
-- session compare
all have four rows
-- session a
UPDATE by_key SET a = 'c' WHERE id = '[2,3)';
DELETE FROM by_key WHERE id = '[3,4)' AND a = 'a';
UPDATE by_index SET a = 'c' WHERE id = '[2,3)';
DELETE FROM by_index WHERE id = '[3,4)' AND a = 'a';
UPDATE whole SET a = 'c' WHERE id = '[2,3)';
DELETE FROM whole WHERE id = '[3,4)' AND a = 'a';
-- wait
UPDATE by_key SET valid = '[2010-01-01,2011-01-01)' WHERE a = 'b';
UPDATE by_index SET valid = '[2010-01-01,2011-01-01)' WHERE a = 'b';
UPDATE whole SET valid = '[2010-01-01,2011-01-01)' WHERE a = 'b';
