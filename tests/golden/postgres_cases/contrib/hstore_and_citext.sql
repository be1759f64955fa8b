-- Types of extensions, one of which is equal for the source where its text is not.
-- replicate stored
-- replicate loose
-- setup
CREATE EXTENSION hstore;
CREATE EXTENSION citext;
CREATE TABLE stored (a int PRIMARY KEY, b hstore, c hstore[]);
CREATE TABLE loose (k citext PRIMARY KEY, v text);
INSERT INTO stored VALUES (1, '"a"=>"1"', '{"a=>1"}'), (2, '"zzz"=>NULL', NULL);
INSERT INTO loose VALUES ('Abc', 'one'), ('def', 'two');
-- workload
INSERT INTO stored VALUES (3, '"123"=>"321", "x y"=>"\"quoted\""', '{}'), (4, '', '{NULL, "b=>2"}');
UPDATE loose SET v = 'changed' WHERE k = 'ABC';
-- session compare
values as they print
-- session a
UPDATE stored SET b = '"updated"=>"value"' WHERE a < 3;
UPDATE stored SET b = b || '"also"=>"this"' WHERE a = 3;
UPDATE loose SET k = 'ABC' WHERE k = 'abc';
UPDATE loose SET k = 'Def', v = 'other' WHERE k = 'def';
-- wait
DELETE FROM stored WHERE b ? 'also';
DELETE FROM loose WHERE k = 'aBc';
INSERT INTO loose VALUES ('aBC', 'again');
