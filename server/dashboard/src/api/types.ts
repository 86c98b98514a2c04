// The wire types by short names. The schema is generated from openapi/openapi.json.
import type { components } from './schema';

type Schemas = components['schemas'];

export type AttemptRow = Schemas['AttemptRow'];
export type Comparison = Schemas['Comparison'];
export type ComparisonRequest = Schemas['ComparisonRequest'];
export type Convention = Schemas['Convention'];
export type DatasetComparison = Schemas['DatasetComparison'];
export type DatasetFormat = Schemas['DatasetFormat'];
export type DatasetOptions = Schemas['DatasetOptions'];
export type DatasetRef = Schemas['DatasetRef'];
export type DatasetResult = Schemas['DatasetResult'];
export type DocumentChange = Schemas['DocumentChange'];
export type DocumentRow = Schemas['DocumentRow'];
export type FieldError = Schemas['FieldError'];
export type FileEntry = Schemas['FileEntry'];
export type GateResult = Schemas['GateResult'];
export type Job = Schemas['Job'];
export type JobRequest = Schemas['JobRequest'];
export type JobResult = Schemas['JobResult'];
export type JobState = Schemas['JobState'];
export type Method = Schemas['Method'];
export type ModelEntry = Schemas['ModelEntry'];
export type ModelRef = Schemas['ModelRef'];
export type PartialDataset = Schemas['PartialDataset'];
export type PartialResult = Schemas['PartialResult'];
export type Problem = Schemas['Problem'];
export type Progress = Schemas['Progress'];
export type ShardRow = Schemas['ShardRow'];
export type Upload = Schemas['Upload'];
export type Verdict = Schemas['Verdict'];
export type WorkerRow = Schemas['WorkerRow'];
export type WorkerState = Schemas['WorkerState'];

/** One page of a list. */
export interface Page<T> {
  items: T[];
  next?: string | null;
}
